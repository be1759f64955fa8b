-- Arrays of numbers, texts, floats and intervals, one of them as the key; elements may be NULL.
-- replicate lists
-- replicate keyed
-- setup
CREATE TABLE lists (id int PRIMARY KEY, n int[]);
CREATE TABLE keyed (k int[] PRIMARY KEY, words text[], f double precision[], spans interval[]);
INSERT INTO lists VALUES (1, '{7, 8, 9}'), (2, '{9, 7}'), (3, '{}');
INSERT INTO keyed VALUES ('{1, 1}', '{x, "y z", NULL}', '{0.5, 1e300}', '{"1 mon 2 days", "-3 hours"}');
-- workload
INSERT INTO lists VALUES (4, '{5, NULL, 6}'), (5, NULL);
INSERT INTO keyed VALUES ('{2, NULL}', '{"", "NULL", NULL}', '{1, NULL, -2.25}', '{"6 years", NULL}'),
  ('{3}', '{}', NULL, '{"2 days 00:00:02.5"}');
-- wait
UPDATE lists SET n = n || 4 WHERE id > 2;
UPDATE lists SET n[1] = 70 WHERE id = 1;
UPDATE keyed SET words = '{a, b}', f = '{3, 4}', spans = '{"1 day 1 second"}' WHERE k[1] > 1;
UPDATE keyed SET k = k || 9 WHERE k = '{3}';
-- wait
DELETE FROM lists WHERE n = '{9, 7}';
DELETE FROM keyed WHERE k[1] = 2;
