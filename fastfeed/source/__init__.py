"""What lies at a place and how it is read as samples: scan, layout, names. Reader and writer share it."""
