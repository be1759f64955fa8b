-- An enum becomes text.
-- replicate t
-- setup
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE TABLE t (id int PRIMARY KEY, m mood);
INSERT INTO t VALUES (1, 'sad'), (2, NULL);
-- workload
ALTER TABLE t ALTER m TYPE text;
INSERT INTO t VALUES (3, 'neither');
-- expected t: live
--   id | m
--   1  | sad
--   2  | NULL
--   3  | neither
-- history t:
--   reloading: table_structure_changed
