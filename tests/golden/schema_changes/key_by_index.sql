-- A unique index identifies rows from now on, over another column than the key's.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, code text NOT NULL UNIQUE, v text);
INSERT INTO t VALUES (1, 'a', 'one'), (2, 'b', 'two');
-- workload
ALTER TABLE t REPLICA IDENTITY USING INDEX t_code_key;
UPDATE t SET v = 'changed' WHERE id = 1;
-- wait
UPDATE t SET id = 20, v = 'other id' WHERE code = 'b';
DELETE FROM t WHERE code = 'a';
-- expected t: live
--   id | code | v
--   20 | b    | other id
-- history t:
--   reloading: table_structure_changed
