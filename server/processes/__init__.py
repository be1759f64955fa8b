"""Child processes of this machine: started, supervised, ended with their parent."""
