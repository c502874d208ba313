"""Where bytes come from: a protocol, and a file for each kind of place."""
