-- The default is the same for all rows of one statement: the source evaluates it once.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
-- workload
ALTER TABLE t ADD COLUMN late boolean DEFAULT (now() > '2020-01-01'), ADD COLUMN whose name DEFAULT current_user;
-- wait
INSERT INTO t (id, v) VALUES (3, 'three');
UPDATE t SET late = NULL WHERE id = 1;
-- expected t: live
--   id | v     | late | whose
--   1  | one   | NULL | postgres
--   2  | two   | t    | postgres
--   3  | three | t    | postgres
-- history t:
--   column late was added
--   column whose was added
