"""What components tell each other through labels and annotations of API objects: names, and texts and back. Pure."""
