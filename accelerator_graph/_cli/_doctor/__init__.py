"""What the doctor examines, one subject in each module; `examination` has them all."""
