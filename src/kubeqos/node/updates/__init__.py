"""What running containers should have, what they have, and the safe order between: the one place that tells them."""
