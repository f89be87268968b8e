"""Blueprints on disk: their names (fingerprint), their form (entry, facts), who may write to their folder (folder)."""
