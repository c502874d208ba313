"""What is wrong or odd about one sample's bytes (look.py), and about sets of samples. Pure functions; no file is opened."""
