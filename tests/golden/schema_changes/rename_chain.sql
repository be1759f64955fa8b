-- A column is renamed twice, with rows in between.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, a text);
INSERT INTO t VALUES (1, 'one');
-- workload
ALTER TABLE t RENAME a TO b;
INSERT INTO t (id, b) VALUES (2, 'two');
-- wait
ALTER TABLE t RENAME b TO c;
INSERT INTO t (id, c) VALUES (3, 'three');
-- wait
UPDATE t SET c = 'changed' WHERE id = 1;
-- expected t: live
--   id | c
--   1  | changed
--   2  | two
--   3  | three
-- history t:
--   column a is named b now
--   column b is named c now
