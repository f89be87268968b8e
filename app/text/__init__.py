"""Text in requests: tokenisation, and the token inputs of a model.

Needs the extra ``text`` (the library ``tokenizers``) and a ``tokenizer.json`` beside the model.
"""
