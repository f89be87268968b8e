"""What a layer is: its class (layer), its types (registry), its schema (signature), its parameters (parameter, hints).

How an operator's arguments find it: binding, the one place where they are resolved.
"""
