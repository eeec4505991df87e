"""A node that runs short: samples of use, thresholds, who goes first, which images are removed."""
