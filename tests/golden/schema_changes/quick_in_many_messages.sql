-- Columns and rows come in turn, each by itself and as fast as they can: they are told in one order, whoever tells them.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY);
INSERT INTO t VALUES (1);
-- workload
ALTER TABLE t ADD COLUMN a int DEFAULT 1;

INSERT INTO t VALUES (2, 2);

ALTER TABLE t ADD COLUMN b int DEFAULT 2;

INSERT INTO t VALUES (3, 3, 3);

ALTER TABLE t ADD COLUMN c text DEFAULT 'c';

UPDATE t SET c = 'changed' WHERE id = 1;

ALTER TABLE t ADD COLUMN d text;

INSERT INTO t VALUES (4, 4, 4, '4', '4');
-- expected t: live
--   id | a | b | c       | d
--   1  | 1 | 2 | changed | NULL
--   2  | 2 | 2 | c       | NULL
--   3  | 3 | 3 | c       | NULL
--   4  | 4 | 4 | 4       | 4
-- history t:
--   column a was added
--   column b was added
--   column c was added
--   column d was added
