"""Windows reduced to one element each, and their inverse."""
