-- Several columns come with one statement, with and without defaults.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY);
INSERT INTO t VALUES (1), (2);
-- workload
ALTER TABLE t ADD COLUMN a int, ADD COLUMN b text DEFAULT 'b', ADD COLUMN c boolean NOT NULL DEFAULT false;
INSERT INTO t VALUES (3, 3, 'three', true);
-- expected t: live
--   id | a    | b     | c
--   1  | NULL | b     | f
--   2  | NULL | b     | f
--   3  | 3    | three | t
-- history t:
--   column a was added
--   column b was added
--   column c was added
