-- Every existing row gets a value of its own, and then the default goes: only the rows tell.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two'), (3, 'three');
CREATE SEQUENCE numbers START 100;
-- workload
ALTER TABLE t ADD COLUMN n int DEFAULT nextval('numbers');
ALTER TABLE t ALTER n DROP DEFAULT;
INSERT INTO t VALUES (4, 'four', 4);
-- expected t: live
--   id | v     | n
--   1  | one   | 100
--   2  | two   | 101
--   3  | three | 102
--   4  | four  | 4
-- history t:
--   reloading: table_structure_changed
