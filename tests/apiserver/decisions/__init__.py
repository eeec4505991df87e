"""Records of decisions: the file, and the API."""
