"""Child processes on this machine: started, supervised, ended with their parent."""
