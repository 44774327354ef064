"""What every model shares: base class, counts, inference, guarantee of a fit."""
