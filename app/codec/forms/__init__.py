"""multipart/form-data: cut into its parts (multipart), and what they say (body)."""
