-- A value of an enum gets another name: rows that have it look different from then on, and none is written.
-- replicate t
-- setup
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE TABLE t (id int PRIMARY KEY, m mood);
INSERT INTO t VALUES (1, 'sad'), (2, 'happy');
-- workload
ALTER TYPE mood RENAME VALUE 'sad' TO 'down';
-- wait
INSERT INTO t VALUES (3, 'down');
-- expected t: live
--   id | m
--   1  | down
--   2  | happy
--   3  | down
-- history t:
--   reloading: table_structure_changed
