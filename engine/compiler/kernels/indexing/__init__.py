"""Elements that indices name: read, written, added up."""
