-- A column without a default is added, and rows come only later.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
-- workload
ALTER TABLE t ADD COLUMN n int;
-- wait
INSERT INTO t VALUES (3, 'three', 3);
UPDATE t SET n = 1 WHERE id = 1;
-- expected t: live
--   id | v     | n
--   1  | one   | 1
--   2  | two   | NULL
--   3  | three | 3
-- history t:
--   column n was added
