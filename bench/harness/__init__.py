"""What every row of the benchmark shares: installing, timing, and writing down."""
