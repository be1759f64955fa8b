-- A column of an enum that is new as well.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
-- workload
CREATE TYPE mood AS ENUM ('sad', 'so so', 'happy');
ALTER TABLE t ADD COLUMN m mood DEFAULT 'so so';
-- wait
INSERT INTO t VALUES (3, 'three', 'happy');
-- expected t: live
--   id | v     | m
--   1  | one   | so so
--   2  | two   | so so
--   3  | three | happy
-- history t:
--   column m was added
