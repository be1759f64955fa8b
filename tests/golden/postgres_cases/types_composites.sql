-- Values made of others, with enums and arrays inside, nested, as keys and in arrays.
-- replicate plain
-- replicate keyed
-- replicate nested
-- setup
CREATE TYPE size AS ENUM ('small', 'large');
CREATE TYPE item AS (weight double precision, name text, n int);
CREATE TYPE sized AS (weight double precision, s size, all_of size[]);
CREATE TYPE crate AS (one item, many item[], s size, sizes size[]);
CREATE TABLE plain (id int PRIMARY KEY, i item, s sized);
CREATE TABLE keyed (k item PRIMARY KEY, many item[], sizes sized[]);
CREATE TABLE nested (k crate PRIMARY KEY, many crate[]);
INSERT INTO plain VALUES (1, ROW(1.5, 'a "quoted", text', 1), ROW(1, 'small', '{large, NULL}'));
INSERT INTO keyed VALUES (ROW(1, 'x', 1), ARRAY[ROW(1, 'x', NULL)::item], NULL);
-- workload
INSERT INTO plain VALUES (2, ROW(NULL, NULL, 5), NULL), (3, NULL, ROW(NULL, NULL, NULL)), (4, ROW(4, '', 4), ROW(4, 'large', '{}'));
INSERT INTO keyed VALUES (ROW(2, 'y (z)', NULL), ARRAY[NULL, ROW(2, '\', 2)::item], ARRAY[ROW(2, 'small', '{small}')::sized]);
INSERT INTO nested VALUES (
  ROW(ROW(1, 'in', 1), ARRAY[ROW(1, 'a,b', 1)::item, NULL], 'small', '{small, NULL, large}'),
  ARRAY[ROW(ROW(2, 'deep', 2), ARRAY[ROW(3, '{deeper}', 3)::item], 'large', '{}')::crate]);
-- wait
UPDATE plain SET i = ROW(9, 'A', NULL) WHERE id < 3;
UPDATE plain SET s.s = 'large' WHERE id = 1;
UPDATE keyed SET many = ARRAY[NULL, ROW(9, 'x', -1)::item] WHERE (k).n IS NULL;
UPDATE keyed SET k = ROW(1, 'x', 2) WHERE (k).name = 'x';
UPDATE nested SET many[2] = NULL;
-- wait
DELETE FROM plain WHERE (i).weight = 4;
DELETE FROM keyed WHERE (k).weight = 2;
INSERT INTO nested SELECT ROW((k).one, (k).many, 'large', '{}')::crate, NULL FROM nested;
