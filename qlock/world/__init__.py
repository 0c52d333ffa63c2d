"""What can fail because of the machine or the net: files, processes, devices, clocks."""
