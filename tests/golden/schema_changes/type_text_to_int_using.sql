-- A text becomes the number that it names.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, '10'), (2, 'none');
-- workload
ALTER TABLE t ALTER v TYPE int USING CASE WHEN v ~ '^\d+$' THEN v::int END;
INSERT INTO t VALUES (3, 30);
-- expected t: live
--   id | v
--   1  | 10
--   2  | NULL
--   3  | 30
-- history t:
--   reloading: table_structure_changed
