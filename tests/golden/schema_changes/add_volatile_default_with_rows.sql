-- Every existing row gets a value of its own, and rows come with the change.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two'), (3, 'three');
CREATE SEQUENCE numbers START 100;
-- workload
INSERT INTO t VALUES (4, 'before');
ALTER TABLE t ADD COLUMN n int DEFAULT nextval('numbers');
INSERT INTO t (id, v) VALUES (5, 'behind');
UPDATE t SET v = 'changed' WHERE id = 2;
-- expected t: live
--   id | v       | n
--   1  | one     | 100
--   2  | changed | 101
--   3  | three   | 102
--   4  | before  | 103
--   5  | behind  | 104
-- history t:
--   reloading: table_structure_changed
