-- Another column becomes the key between the rows of one transaction.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, code text NOT NULL, v text);
INSERT INTO t VALUES (1, 'a', 'one'), (2, 'b', 'two');
-- workload
BEGIN;
UPDATE t SET v = 'changed before' WHERE id = 1;
ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (code);
UPDATE t SET id = 1 WHERE code = 'b';
DELETE FROM t WHERE code = 'a';
INSERT INTO t VALUES (1, 'c', 'three');
COMMIT;
-- expected t: live
--   id | code | v
--   1  | b    | two
--   1  | c    | three
-- history t:
--   reloading: table_structure_changed
