"""Do it: plans over snapshots. Arrow and numpy, vectorised; never a Lance handle."""
