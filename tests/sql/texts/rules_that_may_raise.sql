i + j > 5
NOT (i + j > 5)
i - 1 BETWEEN 1 AND 9
i * j IN (1, NULL)
ti + ti = 2
(i + j > 5) IS TRUE
(i + j > 5) IS NOT FALSE
i + j <=> 2
bo AND i + j > 5
bo OR NOT (i + j > 5)
i / j > 2
j <> 0 AND i / j > 2
d / f > 2
d % f < 1
d + d > 5
i DIV j = 1
b DIV b = 1
b DIV i > 1 OR bo
(- ti) > 1
(- b) < 1
abs(h) < 5
cast(s AS int) > 3
s > 1
s IN (0, 5)
s BETWEEN 0 AND 9
bo AND s
cast(s AS date) = '2024-01-01'
cast(d AS int) > 1
cast(s AS decimal(10,2)) > 0.5
bo AND w + w > 5
bo AND i + j > b
bo AND b > i + j
coalesce(i / j, 0) > 1
CASE WHEN j <> 0 THEN i / j ELSE 0 END > 1
if(bo, i + j, b * b) > 5
b + 1 > 5
(s || 'x') IS NULL AND i + j > 5
i + j > 5 OR i + j < 5
nullif(i + j, 1) = 2
