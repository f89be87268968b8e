"""Embeddings of texts a second, beside other engines with a tokenizer and other servers."""
