-- Other tables inherit from replicated ones from the beginning, one of them replicated as well.
-- replicate t
-- replicate parent
-- replicate child
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
CREATE TABLE t_child (PRIMARY KEY (id)) INHERITS (t);
CREATE TABLE parent (id int PRIMARY KEY, v text);
CREATE TABLE child (w int DEFAULT 3, PRIMARY KEY (id)) INHERITS (parent);
INSERT INTO t VALUES (1, 'one');
INSERT INTO t_child VALUES (2, 'in the child');
INSERT INTO parent VALUES (1, 'one');
INSERT INTO child VALUES (2, 'in the child');
-- workload
INSERT INTO t VALUES (3, 'three');
UPDATE t SET v = 'changed';
UPDATE parent SET v = 'changed';
-- wait
ALTER TABLE parent ADD COLUMN n int;
INSERT INTO parent VALUES (4, 'four', 4);
INSERT INTO child VALUES (5, 'five', 5, 6);
-- wait
TRUNCATE ONLY t;
INSERT INTO t VALUES (7, 'seven');
DELETE FROM parent WHERE id IN (1, 2);
-- expected t: live
--   id | v
--   7  | seven
-- history t: none
-- expected parent: live
--   id | v    | n
--   4  | four | 4
-- history parent:
--   column n was added
-- expected child: live
--   id | v    | w | n
--   5  | five | 5 | 6
-- history child:
--   column n was added
