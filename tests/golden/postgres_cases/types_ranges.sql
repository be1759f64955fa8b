-- Ranges: bounds that are written otherwise, unbounded, empty, infinite, in arrays, and several in one.
-- replicate spans
-- replicate keyed
-- setup
CREATE TABLE spans (id int PRIMARY KEY, n int4range, t tstzrange, many int8range[], holes nummultirange);
CREATE TABLE keyed (k daterange PRIMARY KEY, v text);
INSERT INTO spans VALUES (1, '[1, 10]', '[2020-01-01 00:00+02, infinity)', '{"[1,2]", "(5,9)"}', '{[1,2), [3.5,4]}');
INSERT INTO keyed VALUES ('[2020-01-01, 2020-01-31]', 'january');
-- workload
INSERT INTO spans VALUES (2, 'empty', '(,2021-05-05 12:00+00]', '{"[2,3]", NULL, empty}', '{}'), (3, '(,)', NULL, NULL, NULL),
  (4, '(4, 40)', '[2021-05-05 12:00+00,2021-05-06 12:00:00.5+00)', '{}', '{(,0]}');
INSERT INTO keyed VALUES ('[2020-02-01, 2020-02-28)', 'february'), ('empty', 'none'), ('[2020-03-01,)', 'from march');
-- wait
UPDATE spans SET n = '[100, 1000]' WHERE id = 1;
UPDATE spans SET n = '(1, 90)', many = '{NULL, "[11,9999999999]"}' WHERE id > 2;
UPDATE keyed SET v = 'changed' WHERE lower(k) = '2020-02-01';
UPDATE keyed SET k = '[2020-01-02, 2020-01-31]' WHERE v = 'january';
-- wait
DELETE FROM spans WHERE 7 <@ n;
DELETE FROM keyed WHERE isempty(k);
