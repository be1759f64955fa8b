-- A type gets another name: the columns of it are as they were.
-- replicate t
-- setup
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE TABLE t (id int PRIMARY KEY, m mood);
INSERT INTO t VALUES (1, 'sad'), (2, 'happy');
-- workload
ALTER TYPE mood RENAME TO feeling;
-- wait
INSERT INTO t VALUES (3, 'sad');
-- expected t: live
--   id | m
--   1  | sad
--   2  | happy
--   3  | sad
-- history t:
--   reloading: table_structure_changed
