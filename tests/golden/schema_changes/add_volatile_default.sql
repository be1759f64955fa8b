-- Every existing row gets a value of its own, and the log tells none of them: the table is copied anew.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two'), (3, 'three');
CREATE SEQUENCE numbers START 100;
-- workload
ALTER TABLE t ADD COLUMN n int DEFAULT nextval('numbers') * (random() >= 0)::int;
-- wait
INSERT INTO t (id, v) VALUES (4, 'four');
-- expected t: live
--   id | v     | n
--   1  | one   | 100
--   2  | two   | 101
--   3  | three | 102
--   4  | four  | 103
-- history t:
--   reloading: table_structure_changed
