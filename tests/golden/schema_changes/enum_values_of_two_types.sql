-- A type is made of two enums: one gets a value, then one of the other gets another name.
-- replicate t
-- setup
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE TYPE colour AS ENUM ('red', '1= blue');
CREATE TYPE look AS (m mood, c colour);
CREATE TABLE t (id int PRIMARY KEY, l look[]);
INSERT INTO t VALUES (1, ARRAY[ROW('sad', '1= blue')::look]);
-- workload
ALTER TYPE mood ADD VALUE 'calm' BEFORE 'sad';
-- wait
INSERT INTO t VALUES (2, ARRAY[ROW('calm', 'red')::look]);
-- wait
ALTER TYPE colour RENAME VALUE '1= blue' TO 'green';
-- wait
INSERT INTO t VALUES (3, ARRAY[ROW('calm', 'green')::look]);
-- expected t: live
--   id | l
--   1  | {"(sad,green)"}
--   2  | {"(calm,red)"}
--   3  | {"(calm,green)"}
-- history t:
--   reloading: table_structure_changed
