-- Numbers without a limit keep the digits they were written with, alone and in arrays.
-- replicate numbers
-- replicate keyed
-- setup
CREATE TABLE numbers (id int PRIMARY KEY, b numeric(20, 4), f double precision, d bigint);
CREATE TABLE keyed (k int[] PRIMARY KEY, b numeric(12, 3)[], c text[]);
INSERT INTO numbers VALUES (1, 1.2, 1.3, 10), (2, 2.20, 2.3, 20);
INSERT INTO keyed VALUES ('{1,2,3}', '{1.1, 1.20}', '{one, two}'), ('{3,1,2}', '{1.3, 1.1}', '{three}');
-- workload
INSERT INTO numbers VALUES (3, 3.2, 'Infinity', 9223372036854775807), (4, -0.0001, 5e-324, -9223372036854775808);
INSERT INTO keyed VALUES ('{2,1,3}', '{1.2, NULL}', '{two}'), ('{1,3,2}', '{}', NULL);
-- wait
UPDATE keyed SET b[1] = 42, c = NULL;
UPDATE numbers SET b = 42, f = NULL;
-- wait
INSERT INTO numbers VALUES (5, 5.2, '-0', 50);
INSERT INTO keyed VALUES ('{2,3,1}', '{1.2, 1.3}', '{two, three}');
