-- A value of an enum is renamed that columns hold by way of other types.
-- replicate comp
-- replicate domdom
-- replicate domarr
-- replicate arrdom
-- replicate rng
-- setup
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE TYPE felt AS (at date, m mood);
CREATE DOMAIN md AS mood;
CREATE DOMAIN mdd AS md;
CREATE DOMAIN moods AS mood[];
CREATE TYPE mr AS RANGE (subtype = mood);
CREATE TABLE comp (id int PRIMARY KEY, c felt);
CREATE TABLE domdom (id int PRIMARY KEY, c mdd);
CREATE TABLE domarr (id int PRIMARY KEY, c moods);
CREATE TABLE arrdom (id int PRIMARY KEY, c md[]);
CREATE TABLE rng (id int PRIMARY KEY, c mr);
INSERT INTO comp VALUES (1, ROW('2024-01-01', 'sad'));
INSERT INTO domdom VALUES (1, 'sad');
INSERT INTO domarr VALUES (1, '{sad}');
INSERT INTO arrdom VALUES (1, '{sad}');
INSERT INTO rng VALUES (1, '[sad,happy]');
-- workload
ALTER TYPE mood RENAME VALUE 'sad' TO 'down';
-- wait
INSERT INTO domdom VALUES (2, 'down');
INSERT INTO comp VALUES (2, ROW('2024-01-01', 'down'));
-- expected comp: live
--   id | c
--   1  | (2024-01-01,down)
--   2  | (2024-01-01,down)
-- history comp:
--   reloading: table_structure_changed
-- expected domdom: live
--   id | c
--   1  | down
--   2  | down
-- history domdom:
--   reloading: table_structure_changed
-- expected domarr: live
--   id | c
--   1  | {down}
-- history domarr:
--   reloading: table_structure_changed
-- expected arrdom: live
--   id | c
--   1  | {down}
-- history arrdom:
--   reloading: table_structure_changed
-- expected rng: live
--   id | c
--   1  | [down,happy]
-- history rng:
--   reloading: table_structure_changed
