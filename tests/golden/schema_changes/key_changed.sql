-- Another column becomes the key.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, code text NOT NULL, v text);
INSERT INTO t VALUES (1, 'a', 'one'), (2, 'b', 'two');
-- workload
ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (code);
-- wait
UPDATE t SET v = 'changed' WHERE code = 'a';
UPDATE t SET id = 1 WHERE code = 'b';
INSERT INTO t VALUES (1, 'c', 'three');
-- expected t: live
--   id | code | v
--   1  | a    | changed
--   1  | b    | two
--   1  | c    | three
-- history t:
--   reloading: table_structure_changed
