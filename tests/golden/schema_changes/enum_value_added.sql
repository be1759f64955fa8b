-- An enum gets a value, and a row has it.
-- replicate t
-- setup
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE TABLE t (id int PRIMARY KEY, m mood);
INSERT INTO t VALUES (1, 'sad');
-- workload
ALTER TYPE mood ADD VALUE 'so so' BEFORE 'happy';

INSERT INTO t VALUES (2, 'so so');
UPDATE t SET m = 'happy' WHERE id = 1;
-- expected t: live
--   id | m
--   1  | happy
--   2  | so so
-- history t: none
