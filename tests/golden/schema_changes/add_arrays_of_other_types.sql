-- Arrays of numbers, dates and boxes fill the rows from before; boxes are parted by a semicolon.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY);
INSERT INTO t VALUES (1), (2);
-- workload
ALTER TABLE t
  ADD COLUMN numbers int[] DEFAULT '{1,NULL,3}',
  ADD COLUMN days date[] DEFAULT '{2020-02-29,NULL}',
  ADD COLUMN none text[] DEFAULT '{}',
  ADD COLUMN areas box[] DEFAULT '{(1,1),(0,0);(2,2),(1,1)}',
  ADD COLUMN area box DEFAULT '(1,1),(0,0)';
-- wait
INSERT INTO t (id) VALUES (3);
-- expected t: live
--   id | numbers    | days              | none | areas                     | area
--   1  | {1,NULL,3} | {2020-02-29,NULL} | {}   | {(1,1),(0,0);(2,2),(1,1)} | (1,1),(0,0)
--   2  | {1,NULL,3} | {2020-02-29,NULL} | {}   | {(1,1),(0,0);(2,2),(1,1)} | (1,1),(0,0)
--   3  | {1,NULL,3} | {2020-02-29,NULL} | {}   | {(1,1),(0,0);(2,2),(1,1)} | (1,1),(0,0)
-- history t:
--   column numbers was added
--   column days was added
--   column none was added
--   column areas was added
--   column area was added
