"""Steps that follow each other, computed a band of rows at a time: where it pays (strips), and for what (bands)."""
