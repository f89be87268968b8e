"""Windows pooled, and their inverse."""
