-- A value is renamed, a row comes, and the value has its old name again.
-- replicate t
-- setup
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE TABLE t (id int PRIMARY KEY, m mood);
INSERT INTO t VALUES (1, 'sad');
-- workload
BEGIN;
ALTER TYPE mood RENAME VALUE 'sad' TO 'down';
INSERT INTO t VALUES (2, 'down');
ALTER TYPE mood RENAME VALUE 'down' TO 'sad';
COMMIT;
-- wait
INSERT INTO t VALUES (3, 'sad');
-- expected t: live
--   id | m
--   1  | sad
--   2  | sad
--   3  | sad
-- history t:
--   reloading: table_structure_changed
