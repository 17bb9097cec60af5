"""What is visible, and how does that change? Tables, versions and commits; no type names."""
