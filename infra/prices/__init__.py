"""Reads the providers' public price lists into the catalogue's tables; nothing at deploy time needs it."""
