"""Messages of foreign protocols, converted to and from requests of the data plane, independent of their transport."""
