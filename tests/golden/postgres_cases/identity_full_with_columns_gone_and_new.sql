-- Whole rows identify where a column was dropped, and where old rows never stored the value of a column added later.
-- replicate gone
-- replicate missing
-- setup
CREATE TABLE gone (a int, b int, c int);
ALTER TABLE gone REPLICA IDENTITY FULL;
CREATE TABLE missing (a int);
INSERT INTO gone VALUES (1, 1, 1), (2, 2, 2);
INSERT INTO missing VALUES (1), (2);
ALTER TABLE missing ADD COLUMN b bool DEFAULT false;
ALTER TABLE missing REPLICA IDENTITY FULL;
INSERT INTO missing VALUES (3, NULL);
-- workload
ALTER TABLE gone DROP COLUMN b;
-- wait
UPDATE gone SET a = 100 WHERE a = 1;
DELETE FROM gone WHERE c = 2;
UPDATE missing SET a = 10 WHERE a = 1;
DELETE FROM missing WHERE a = 2;
-- session compare
rows were found
-- session a
ALTER TABLE missing ADD COLUMN c text DEFAULT 'given';
UPDATE missing SET a = -a;
-- wait
UPDATE missing SET a = -a, c = 'someval' WHERE b IS NULL;
DELETE FROM missing WHERE a = -10;
INSERT INTO gone VALUES (1, 1), (1, 1);
